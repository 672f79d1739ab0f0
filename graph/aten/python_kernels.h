// graph/aten/python_kernels.h — kernels that the program has registered from Python (torch.library).
//
// A kernel of an op of torch: torch's own kernels call operators, and so do its formulas of gradients (relu is computed
// by clamp_min). So one such kernel may change any result. A kernel of another op is called by plans. But one that
// comes before recording (in place of autograd's) would run while the op is recorded, once for all calls.
#pragma once

#include <string>
#include <string_view>

namespace framejit::graph {

// `row`: a row of torch's list of such kernels, "aten/add.Tensor/CPU". `folder`: of the package torch, with a slash.
// "aten::add.Tensor (CPU)" if it may compute a captured op of torch; "" otherwise, also if it is torch's own. A kernel
// that would run while its op is recorded makes calls of that op breaks.
std::string replaced_by(std::string_view row, std::string_view folder);

}  // namespace framejit::graph
