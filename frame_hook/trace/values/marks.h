// frame_hook/trace/values/marks.h — the attributes in which marks are left on tensors and functions.
//
// python/framejit/api.py writes framejit's own; the extension tells it these names. torch's functions of the same
// purpose write torch's.
#pragma once

namespace framejit::frame_hook {

inline constexpr const char* kDynamicMark = "_framejit_dynamic";  // frozenset of (dim, least, most); None: no bound
inline constexpr const char* kStaticMark = "_framejit_static";    // frozenset of dims
inline constexpr const char* kStaticAddressMark = "_framejit_static_address";  // True
inline constexpr const char* kDisabledMark = "_framejit_disable";  // of a function that no trace enters: why, a str

inline constexpr const char* kTorchStaticMark = "_dynamo_static_indices";
inline constexpr const char* kTorchStaticAddressMark = "_dynamo_static_input_type";
inline constexpr const char* kTorchDisabledMark = "_torchdynamo_disable";  // True

}  // namespace framejit::frame_hook
