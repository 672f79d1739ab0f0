// guards/aten/replaced_kernels.h — whether the program has given an operator of torch another kernel, from Python.
// While it has, nothing is captured (graph/aten/python_kernels.h). All need the GIL.
#pragma once

#include <string>

namespace framejit::guards {

bool watch_kernels();                  // finds torch's list of them, once; false: a Python exception is set
bool has_replaced_kernels();  // cheap unless there are, or the list has changed since the last call
const std::string& replaced_kernel();  // "aten::relu (CPU)": the first of them; "" if there is none

}  // namespace framejit::guards
