# What many files of a target have in common is compiled once.
#
# Precompiled are headers of others that most files of a target include. Headers of ours never are: a change of one
# would compile everything anew, and a file would not notice that it forgot to include it. Nor are torch's: each file
# that sees them instantiates their templates and emits their inline functions, 12 s for an empty one.
#
# Files of one folder are joined: headers are read and their templates instantiated once for all of them. A new checkout
# builds in half the time so. While you work on the code, configure with -DFRAMEJIT_JOIN=OFF (make
# build JOIN=OFF, in a new build folder): a change then compiles one file, and a file notices what it forgot to include.
option(FRAMEJIT_PRECOMPILE "Precompile the headers of the standard library, of LLVM and of GoogleTest" ON)
option(FRAMEJIT_JOIN "Compile the files of a folder several at a time" ON)
set(FRAMEJIT_JOINED_FILES 24)

set(FRAMEJIT_STANDARD_HEADERS <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <functional> <limits>
    <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <unordered_map> <unordered_set> <utility>
    <variant> <vector>)
set(FRAMEJIT_LLVM_HEADERS <llvm/IR/IRBuilder.h> <llvm/IR/Module.h> <llvm/IR/MDBuilder.h>)

# framejit_precompile(TARGET headers...): the standard ones, after these (Python.h must be the first).
function(framejit_precompile target)
  if(FRAMEJIT_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${ARGN} ${FRAMEJIT_STANDARD_HEADERS})
  endif()
endfunction()

# framejit_join(TARGET sources...): the files of each folder in groups. A few groups read the headers in less time than
# it takes to precompile them.
set(FRAMEJIT_FEW_GROUPS 4)
function(framejit_join target)
  if(NOT FRAMEJIT_JOIN)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set(groups)
  foreach(source IN LISTS ARGN)
    get_filename_component(folder "${source}" DIRECTORY)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    if(NOT DEFINED count_${folder})
      set(count_${folder} 0)
    endif()
    math(EXPR group "${count_${folder}} / ${FRAMEJIT_JOINED_FILES}")
    math(EXPR count_${folder} "${count_${folder}} + 1")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${folder}_${group}")
    list(APPEND groups "${folder}_${group}")
  endforeach()
  list(REMOVE_DUPLICATES groups)
  list(LENGTH groups count)
  if(count LESS_EQUAL FRAMEJIT_FEW_GROUPS)
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  endif()
endfunction()
