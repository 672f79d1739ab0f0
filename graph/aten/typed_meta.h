// graph/aten/typed_meta.h — torch's typed C++ shape functions as boxed kernels; the table is generated at build time by
// gen_meta_table.py.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <vector>

namespace framejit::graph {

struct TypedMetaRow {
  const char* name;  // as OpDef::name
  c10::KernelFunction kernel;
};
std::vector<TypedMetaRow> typed_meta_rows();

}  // namespace framejit::graph
