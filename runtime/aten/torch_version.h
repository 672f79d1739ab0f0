// runtime/aten/torch_version.h — the differences between torch 2.11 and 2.13: the only file that asks for the version.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif

#include <memory>

#define FRAMEJIT_TORCH (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)

namespace framejit::runtime {

// Makes a request for writable memory of `storage` call `note`. Before 2.13 the reader gets an error instead, which
// ends a segment like any other exception.
inline void note_data_read(c10::StorageImpl& storage, void (*note)(c10::StorageImpl*)) {
#if FRAMEJIT_TORCH >= 213
  storage.set_materializer(note);
#else
  (void)note;
  storage.set_throw_on_mutable_data_ptr();
#endif
}

// An autograd node, held the way torch holds it.
template <class Node>
auto make_autograd_node() {
#if FRAMEJIT_TORCH >= 213
  return c10::make_intrusive<Node>();
#else
  return std::make_shared<Node>();
#endif
}

// False: Python has never seen the tensor. Before 2.13 the answer may be true although it has not.
inline bool has_python_object(const at::Tensor& tensor) {
#if FRAMEJIT_TORCH >= 213
  return tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() != nullptr;
#else
  return tensor.defined();
#endif
}

}  // namespace framejit::runtime
