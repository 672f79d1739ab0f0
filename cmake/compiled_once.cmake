# What many files of a target have in common is compiled once.
#
# Precompiled are headers of others that most files of a target include. Headers of ours never are: a change of one
# would compile everything anew, and a file would not notice that it forgot to include it. Nor are torch's: each file
# that sees them instantiates their templates and emits their inline functions, 12 s for an empty one.
#
# Files of one folder are joined: headers are read and their templates instantiated once for all of them. A new checkout
# builds in half the time so. While you work on the code, configure with -DFRAMEJIT_JOIN=OFF (make build JOIN=OFF, in a
# new build folder): a change then compiles one file, and a file notices what it forgot to include.
option(FRAMEJIT_PRECOMPILE "Precompile the headers of the standard library, of LLVM and of GoogleTest" ON)
option(FRAMEJIT_JOIN "Compile the files of a folder several at a time" ON)
set(FRAMEJIT_JOINED_FILES 28)

set(FRAMEJIT_STANDARD_HEADERS <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <functional> <limits>
    <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <unordered_map> <unordered_set> <utility>
    <variant> <vector>)
set(FRAMEJIT_LLVM_HEADERS <llvm/IR/IRBuilder.h> <llvm/IR/Module.h> <llvm/IR/MDBuilder.h>)

# framejit_precompile(TARGET headers...): the standard ones, after these (Python.h must be the first). A few files read
# them in less time than it takes to precompile them.
function(framejit_precompile target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(FRAMEJIT_PRECOMPILE AND count GREATER 4)
    target_precompile_headers(${target} PRIVATE ${ARGN} ${FRAMEJIT_STANDARD_HEADERS})
  endif()
endfunction()

# framejit_join(LIST [ALONE regex] [FOLDERS_TOO]): puts files that include those of the list in their place; ALONE stay
# as they are. FOLDERS_TOO joins folders with few files: each file that reads torch's headers takes 10 s for them.
# Files are named by their place in the checkout: a compiler cache knows them in another one too.
function(framejit_join list)
  cmake_parse_arguments(arg "FOLDERS_TOO" "ALONE" "" ${ARGN})
  if(NOT FRAMEJIT_JOIN OR NOT ${list})
    return()
  endif()
  set(result ${${list}})
  set(alone)
  if(arg_ALONE)
    list(FILTER result EXCLUDE REGEX "${arg_ALONE}")
    set(alone ${${list}})
    list(FILTER alone INCLUDE REGEX "${arg_ALONE}")
  endif()
  foreach(file IN LISTS result)
    get_filename_component(folder "${file}" DIRECTORY)
    list(APPEND folders "${folder}")
    list(APPEND files_of_${folder} "${file}")
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(joined)
  set(group)
  foreach(folder IN LISTS folders)
    list(LENGTH group before)
    list(LENGTH files_of_${folder} more)
    math(EXPR together "${before} + ${more}")
    framejit_optimisation("${folder}" optimisation)
    if(NOT arg_FOLDERS_TOO OR together GREATER FRAMEJIT_JOINED_FILES OR NOT optimisation STREQUAL of_group)
      framejit_joined_files(joined ${group})
      set(group)
    endif()
    set(of_group "${optimisation}")
    list(APPEND group ${files_of_${folder}})
  endforeach()
  framejit_joined_files(joined ${group})
  set(${list} ${joined} ${alone} PARENT_SCOPE)
endfunction()

# framejit_joined_files(OUT files...): appends files that include these, FRAMEJIT_JOINED_FILES at most each.
function(framejit_joined_files out)
  list(LENGTH ARGN count)
  if(count EQUAL 0)
    return()
  endif()
  list(GET ARGN 0 first)
  get_filename_component(folder "${first}" DIRECTORY)
  cmake_path(RELATIVE_PATH folder BASE_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE name)
  string(MAKE_C_IDENTIFIER "${name}" name)
  math(EXPR last "${count} - 1")
  foreach(begin RANGE 0 ${last} ${FRAMEJIT_JOINED_FILES})
    list(SUBLIST ARGN ${begin} ${FRAMEJIT_JOINED_FILES} some)
    set(made "${CMAKE_BINARY_DIR}/joined/${name}_${begin}.cpp")
    set(text)
    foreach(file IN LISTS some)
      cmake_path(IS_PREFIX CMAKE_BINARY_DIR "${file}" generated)
      if(generated)
        set_property(SOURCE "${made}" APPEND PROPERTY OBJECT_DEPENDS "${file}")
        cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${CMAKE_BINARY_DIR}/joined")
      else()
        cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${CMAKE_SOURCE_DIR}")
      endif()
      string(APPEND text "#include \"${file}\"\n")
    endforeach()
    file(CONFIGURE OUTPUT "${made}" CONTENT "${text}" @ONLY)
    framejit_optimise("${folder}" "${made}")
    list(APPEND ${out} "${made}")
  endforeach()
  set(${out} ${${out}} PARENT_SCOPE)
endfunction()
