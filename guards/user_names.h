// guards/user_names.h — what the user's code calls the things that a frame holds: for messages on a miss.
//
// Who knows the frame's bytecode and source implements it (frame_hook/resume/frame_names.h). It may read source files.
#pragma once

#include <Python.h>

#include <string>

namespace framejit::guards {

class UserNames {
 public:
  virtual ~UserNames() = default;
  virtual std::string local(int slot) const = 0;  // "x"
  virtual bool are_arguments(int slot) const = 0;  // all positional arguments of a call, or all keywords
  // Item `index` of the local, if the user's code has a name of its own for it; "" if not. key: of a dict, or null.
  virtual std::string item(int slot, int index, PyObject* key) const = 0;
  virtual std::string pushed(int index) const = 0;   // "the loop over enumerate(x)": a value on the stack
  virtual std::string captured(int index) const = 0;  // the free variable of the frame's function
};

}  // namespace framejit::guards
