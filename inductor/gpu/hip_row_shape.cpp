// inductor/gpu/hip_row_shape.cpp — as few threads as can keep a row in registers; more if there are few rows.
#include "inductor/gpu/hip_row_shape.h"

#include <algorithm>

namespace framejit::inductor {
namespace {

class Chooser {
 public:
  Chooser(const RowWork& work, const TargetInfo& target)
      : work_(work), costs_(target.costs), target_(target), few_rows_(work.rows < costs_.few_rows) {
    shape_.first_nest = work.first_nest;
  }

  RowShape run() {
    shape_.in_registers = true;
    const int64_t least = std::min(power_of_two_from(work_.runs), costs_.wave_threads);
    take(work_.is_known ? least : std::max(least, costs_.row_block_threads));
    while (!fits(few_rows_ ? costs_.few_row_values : costs_.row_values, all_words()) &&
           shape_.threads < costs_.most_row_threads)
      take(2 * shape_.threads);
    shape_.in_registers =
        fits(costs_.row_values, all_words()) || fits(costs_.row_values, live_words()) || fits_in_blocks();
    if (!shape_.in_registers && work_.is_known) {
      const bool is_one_pass = work_.nests == 1 && !few_rows_;
      take(is_one_pass ? costs_.block_threads : costs_.most_row_threads);
    }
    shape_.rows = few_rows_ ? std::max<int64_t>(costs_.wave_threads / shape_.threads, 1)
                            : std::max<int64_t>(costs_.row_block_threads / shape_.threads, 1);
    return shape_;
  }

 private:
  // Whether a row fits into the registers of several blocks that run side by side, all rows at once. As many share one
  // as there are processors for.
  bool fits_in_blocks() {
    if (!target_.traits.blocks_meet || work_.nests == 1) return false;
    const auto is_enough = [&] { return fits(costs_.row_values, live_words()); };
    const auto goes_on = [&] { return !is_enough() || !fits(costs_.few_row_values, 0); };
    while (goes_on() && shape_.blocks < costs_.row_blocks && 2 * shape_.blocks * work_.rows <= target_.processors)
      take_blocks(2 * shape_.blocks);
    if (!is_enough()) take_blocks(1);
    return shape_.blocks > 1;
  }

  void take_blocks(int64_t blocks) {
    shape_.blocks = blocks;
    take(costs_.most_row_threads);
  }
  void take(int64_t threads) {
    shape_.threads = threads;
    shape_.chunks = (work_.runs + shape_.row_threads() - 1) / shape_.row_threads();
  }
  bool fits(int64_t values, int64_t words_of_a_run) const {
    const int64_t free = costs_.register_words / shape_.threads - costs_.body_words;
    return shape_.chunks * work_.width <= values && shape_.chunks * words_of_a_run <= std::min(costs_.row_words, free);
  }

  int64_t all_words() const {
    int64_t words = work_.arrays * work_.width;
    for (const RowPlace& p : work_.places)
      if (shape_.keeps(p)) words += p.words;
    return words;
  }

  // Words that a thread holds of a run at once. Loads come before a nest's loop; in the loop, what is loaded for the
  // last time makes room for what is stored.
  int64_t live_words() const {
    int64_t most = 0;
    for (size_t k = 0; k < work_.nests; ++k) most = std::max({most, words_at(k, false), words_at(k, true)});
    return most;
  }
  int64_t words_at(size_t loop, bool is_after) const {
    int64_t words = work_.arrays * work_.width;
    for (const RowPlace& p : work_.places) {
      const bool has_begun = p.first_load <= loop || p.first_store < loop + is_after;
      if (shape_.keeps(p) && has_begun && loop < p.last_load + !is_after) words += p.words;
    }
    return words;
  }

  const RowWork& work_;
  const Costs& costs_;
  const TargetInfo& target_;
  const bool few_rows_;
  RowShape shape_;
};

}  // namespace

RowShape choose_row_shape(const RowWork& work, const TargetInfo& target) { return Chooser(work, target).run(); }

}  // namespace framejit::inductor
