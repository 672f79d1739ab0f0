#include "frame_hook/trace/values/library_files.h"

#include <string_view>

#include "frame_hook/bytecode/code.h"
#include "frame_hook/trace/values/loaded_modules.h"
#include "guards/cpython/names.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

namespace {

constexpr std::string_view kFrozen = "<frozen ", kInstalled[] = {"/site-packages/", "/dist-packages/"};

std::string_view path_in(PyObject* filename) {
  const char* text = find_text(filename);
  return text ? text : "";
}

// The folder of a module, with the last slash, once the module is loaded; "" before.
class Folder {
 public:
  explicit Folder(const char* module) : module_(module) {}
  const std::string& path() {
    if (!path_.empty()) return path_;
    PyObject* const file = member_of_module(module_, "__file__");
    const std::string_view text = file ? path_in(file) : "";
    return path_ = text.substr(0, text.rfind('/') + 1);
  }
  bool has(std::string_view file) { return !path().empty() && file.starts_with(path_); }

 private:
  const char* module_;
  std::string path_;
};

Folder& standard_library() {
  static auto* const folder = new Folder("os");
  return *folder;
}
Folder& torch() {
  static auto* const folder = new Folder("torch");
  return *folder;
}
Folder& framejit_itself() {  // may lie in a build folder
  static auto* const folder = new Folder("framejit");
  return *folder;
}

}  // namespace

bool is_torch_file(PyObject* filename) { return torch().has(path_in(filename)); }

bool is_file_of_torch_modules(PyObject* filename) {
  static auto* const folder = new Folder("torch.nn.modules");
  return folder->has(path_in(filename));
}

bool is_library_file(PyObject* filename) {
  const std::string_view file = path_in(filename);
  if (torch().has(file) || framejit_itself().has(file) || standard_library().has(file) || file.starts_with(kFrozen))
    return true;
  for (const std::string_view packages : kInstalled)
    if (file.find(packages) != file.npos) return true;
  return false;
}

bool is_never_the_program(PyObject* filename) {
  const std::string_view file = path_in(filename);
  if (torch().has(file) || framejit_itself().has(file) || file.starts_with(kFrozen)) return true;
  if (!standard_library().has(file)) return false;
  // Without a virtual environment, packages are installed below the standard library.
  const std::string_view below = file.substr(standard_library().path().size() - 1);
  for (const std::string_view packages : kInstalled)
    if (below.starts_with(packages)) return false;
  return true;
}

std::string place_of_caller() {
  PyRef frame = PyRef::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* object = reinterpret_cast<PyFrameObject*>(frame.get());
    const PyRef code = PyRef::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(object)));
    auto* of = reinterpret_cast<PyCodeObject*>(code.get());
    if (!is_library_file(of->co_filename)) return place_of(of, PyFrame_GetLineNumber(object)) + ", in ";
    frame = PyRef::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(object)));
  }
  return "";
}

}  // namespace framejit::frame_hook
