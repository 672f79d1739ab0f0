// inductor/compile_kernels.cpp — a list of distinct kernels, from which several threads take the next one.
#include "inductor/compile_kernels.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "runtime/base/interrupt.h"
#include "runtime/base/log.h"

namespace framejit::inductor {
namespace {

struct Job {
  size_t kernel;
  double milliseconds = 0;
  std::optional<Result<CompiledKernel>> result;
  std::exception_ptr defect;  // thrown again where the plan is made
};

void run_job(const std::vector<Kernel>& kernels, KernelTarget& target, Job& job) {
  const auto start = std::chrono::steady_clock::now();
  try {
    job.result = target.compile(kernels[job.kernel]);
  } catch (...) {
    job.defect = std::current_exception();
  }
  job.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void run_jobs(const std::vector<Kernel>& kernels, KernelTarget& target, std::vector<Job>& jobs) {
  std::atomic<size_t> next{0};
  const auto work = [&, id = log::current_id(), place = log::current_place()] {
    const log::CompileScope scope(id, place);
    for (size_t at = next++; at < jobs.size(); at = next++) run_job(kernels, target, jobs[at]);
  };
  const auto work_unless_interrupted = [&] {
    for (size_t at = next++; at < jobs.size(); at = next++) {
      if (interrupted()) next = jobs.size();
      else run_job(kernels, target, jobs[at]);
    }
  };
  std::vector<std::thread> others;
  const int64_t threads =
      std::min({static_cast<int64_t>(jobs.size()), target.most_compiling_threads(), target.info().cores});
  try {
    while (static_cast<int64_t>(others.size()) + 1 < threads) others.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads are available: the existing ones do all the work.
  }
  work_unless_interrupted();
  for (std::thread& other : others) other.join();
}

}  // namespace

Result<void> compile_kernels(const std::vector<Kernel>& kernels, KernelTarget& target,
                             std::vector<CompiledKernel>& compiled) {
  std::unordered_map<std::string, size_t> job_of;
  std::vector<Job> jobs;
  std::vector<size_t> own(kernels.size(), SIZE_MAX);
  for (size_t k = 0; k < kernels.size(); ++k) {
    if (kernels[k].nests.empty()) continue;
    const auto [at, is_new] = job_of.emplace(print(kernels[k]), jobs.size());
    if (is_new) jobs.push_back({k});
    own[k] = at->second;
  }
  run_jobs(kernels, target, jobs);
  if (std::any_of(jobs.begin(), jobs.end(), [](const Job& job) { return !job.result && !job.defect; }))
    return Error{Reason::interrupted, "a signal"};
  for (const Job& job : jobs) {
    if (job.defect) std::rethrow_exception(job.defect);
    if (!job.result->ok()) return job.result->error();
    log::emit_stage("", "kernel of " + kernels[job.kernel].nests[0].nest.name, job.milliseconds);
  }
  compiled.resize(kernels.size());
  for (size_t k = 0; k < kernels.size(); ++k) {
    if (own[k] == SIZE_MAX) continue;
    const Job& job = jobs[own[k]];
    if (job.kernel == k) {
      compiled[k] = job.result->value();
    } else {
      FJ_TRY(compiled[k], target.compile(kernels[k]));  // reuses the code of equal text; extent and grain are its own
    }
  }
  return {};
}

}  // namespace framejit::inductor
