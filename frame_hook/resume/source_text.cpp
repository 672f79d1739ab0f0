#include "frame_hook/resume/source_text.h"

#include <algorithm>

#include "guards/cpython/interrupts.h"
#include "guards/cpython/names.h"
#include "guards/cpython/py_ref.h"

namespace framejit::frame_hook {

namespace {

std::string source_line(PyObject* file, int line) {  // "" when there is none
  PyRef linecache = PyRef::steal(PyImport_ImportModule("linecache"));
  PyRef text = PyRef::steal(linecache ? PyObject_CallMethod(linecache.get(), "getline", "Oi", file, line) : nullptr);
  drop_error();
  const char* utf8 = find_text(text.get());
  std::string result = utf8 ? utf8 : "";
  while (!result.empty() && (result.back() == '\n' || result.back() == '\r')) result.pop_back();
  return result;
}

}  // namespace

std::string caret_text(PyObject* file, const SourceSpan& span) {
  if (!file || span.line <= 0) return "";
  const std::string line = source_line(file, span.line);
  const size_t indent = line.find_first_not_of(" \t");
  if (indent == std::string::npos) return "";
  std::string result = "    " + line.substr(indent);
  const size_t from = static_cast<size_t>(std::max(span.column, 0));
  const size_t to =
      std::min(span.end_line == span.line && span.end_column >= 0 ? static_cast<size_t>(span.end_column) : line.size(),
               line.size());
  if (span.column < 0 || from < indent || from >= to) return result;
  auto width = [&](size_t begin, size_t end) {  // in characters
    return std::count_if(line.begin() + static_cast<long>(begin), line.begin() + static_cast<long>(end),
                         [](char c) { return (c & 0xC0) != 0x80; });
  };
  return result + "\n    " + std::string(static_cast<size_t>(width(indent, from)), ' ') +
         std::string(static_cast<size_t>(width(from, to)), '^');
}

std::string text_of_span(PyObject* file, const SourceSpan& span) {
  if (!file || span.line <= 0 || span.end_line != span.line || span.column < 0) return "";
  const std::string line = source_line(file, span.line);
  const auto from = static_cast<size_t>(span.column), to = static_cast<size_t>(span.end_column);
  return span.end_column > span.column && to <= line.size() ? line.substr(from, to - from) : "";
}

}  // namespace framejit::frame_hook
