// inductor/cpu/plan/product.cpp — how much of a matrix product stays in registers and caches at a time.
#include <algorithm>

#include "inductor/cpu/plan/planning.h"

namespace framejit::inductor {
namespace {

// How many terms are summed before results go to memory: as many as let `rows` of the left operand take half of the
// first-level cache.
int64_t most_terms(const Caches& caches, int64_t rows) {
  constexpr int64_t kUnit = 64, kElement = 4;
  return std::max<int64_t>(caches.first / 2 / (rows * kElement) / kUnit * kUnit, kUnit);
}

// Registers hold the sums of a tile, the vectors of the columns, and one vector of a row.
struct TileShape {
  unsigned rows, columns;
};
TileShape tile_shape(unsigned registers) {
  constexpr TileShape kLarge{6, 4}, kSmall{4, 3};
  return kLarge.rows * kLarge.columns + kLarge.columns + 1 <= registers ? kLarge : kSmall;
}

}  // namespace

ProductPlan plan_product(const Kernel& kernel, const TargetInfo& target) {
  constexpr size_t kColumn = 0, kSum = 2;
  const Nest& nest = kernel.nests[0].nest;
  const TileShape tile = tile_shape(target.registers.count);
  const int64_t terms = nest.extent(kSum).constant(), most = most_terms(target.caches, tile.rows);
  const int64_t blocks = (terms + most - 1) / most, lanes = target.registers.lanes;
  const auto columns = nest.extent(kColumn).as_constant();
  return {tile.rows,
          tile.columns,
          blocks,
          ((terms + blocks - 1) / blocks + lanes - 1) / lanes * lanes,
          kernel.unit() % tile.columns == 0 && columns && *columns % int64_t{tile.columns} == 0,
          target.costs.product_columns};
}

}  // namespace framejit::inductor
