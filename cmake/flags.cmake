# Compiler settings of every target: C++20, optimisation, sections that the linker can drop; ccache and mold if they are
# found.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# -O1 compiles in a quarter less time than -O2. What runs at each call of a compiled function gets -O2.
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")
set(FRAMEJIT_HOT_FOLDERS "^(runtime|guards|frame_hook/(hook|resume|aten))(/|$)")
# The compiler collects its garbage later: 8 % less time, a third more memory.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=400>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1000000>)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(FRAMEJIT_CCACHE ccache)
if(FRAMEJIT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers are cached only so: macros of the command line and __TIME__ do not change what they contain.
  # CCACHE_DEPEND: the compiler tells which files a file includes; otherwise each is preprocessed first.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 "${FRAMEJIT_CCACHE}")
endif()
find_program(FRAMEJIT_MOLD mold)
if(FRAMEJIT_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# The kernel cache distinguishes builds by it (runtime/base/build_id.h).
add_link_options(-Wl,--build-id=sha1)

# framejit_optimise(FOLDER files...): the files as those of this folder. A precompiled header is for one optimisation.
function(framejit_optimise folder)
  framejit_optimisation("${folder}" optimisation)
  if(optimisation)
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${optimisation}" SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()
function(framejit_optimisation folder out)
  cmake_path(RELATIVE_PATH folder BASE_DIRECTORY "${CMAKE_SOURCE_DIR}")
  set(${out} "" PARENT_SCOPE)
  if(folder MATCHES "${FRAMEJIT_HOT_FOLDERS}")
    set(${out} -O2 PARENT_SCOPE)
  endif()
endfunction()

# Settings shared by libraries, the extension and the tests.
function(framejit_settings target)
  target_include_directories(${target} PUBLIC "${CMAKE_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-missing-field-initializers
    -ffunction-sections -fdata-sections)
  if(FRAMEJIT_JOIN)  # to the compiler, files that are joined are headers
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  target_link_options(${target} PRIVATE -Wl,--gc-sections)
  if(FRAMEJIT_SANITIZE STREQUAL "thread")
    target_compile_options(${target} PRIVATE -O1 -g1 -fno-omit-frame-pointer -fsanitize=thread)
    target_link_options(${target} PRIVATE -fsanitize=thread)
  elseif(FRAMEJIT_SANITIZE)
    # vptr needs the type information of LLVM's classes, which LLVM is built without.
    target_compile_options(${target} PRIVATE -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined
      -fno-sanitize=vptr -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  endif()
endfunction()

# Targets of the package lie next to each other and find each other there.
function(framejit_package_target target)
  set_target_properties(${target} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${FRAMEJIT_PACKAGE_DIR}"
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN")
endfunction()

function(framejit_library target kind)
  add_library(${target} ${kind} ${ARGN})
  framejit_settings(${target})
  # Calls inside a library go straight to their target and may be inlined: nobody replaces our functions from outside.
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic-functions)
  framejit_package_target(${target})
endfunction()

# framejit_built_library(TARGET FILE): a library that another build folder has made, next to those of this one.
function(framejit_built_library target file)
  get_filename_component(name "${file}" NAME)
  file(MAKE_DIRECTORY "${FRAMEJIT_PACKAGE_DIR}")
  file(CREATE_LINK "${file}" "${FRAMEJIT_PACKAGE_DIR}/${name}" SYMBOLIC)
  add_library(${target} SHARED IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${file}" IMPORTED_SONAME "${name}")
  target_include_directories(${target} INTERFACE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${target} INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
endfunction()
