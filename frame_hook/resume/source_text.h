// frame_hook/resume/source_text.h — lines of the user's source files, for messages. They are read through Python's
// linecache: Python code runs.
#pragma once

#include <Python.h>

#include <string>

#include "frame_hook/bytecode/code.h"

namespace framejit::frame_hook {

// The first line of the span, and ^^^ below its part of it; "" if the file cannot be read. file: a str, or null
std::string caret_text(PyObject* file, const SourceSpan& span);
// The text of a span within one line; "" for any other.
std::string text_of_span(PyObject* file, const SourceSpan& span);

}  // namespace framejit::frame_hook
