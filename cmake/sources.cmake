# framejit_sources(OUT FOLDERS a b [EXCLUDE regex]): the .cpp files below the folders; empty if a folder is missing or
# empty.
function(framejit_sources out)
  cmake_parse_arguments(arg "" "EXCLUDE" "FOLDERS" ${ARGN})
  set(found)
  foreach(folder IN LISTS arg_FOLDERS)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/${folder}/*.cpp")
    list(APPEND found ${files})
  endforeach()
  if(arg_EXCLUDE)
    list(FILTER found EXCLUDE REGEX "${arg_EXCLUDE}")
  endif()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# Adds the table of torch's typed shape functions, generated from the headers of the torch that the build uses.
function(framejit_generated_meta_table sources)
  set(script "${CMAKE_SOURCE_DIR}/graph/aten/gen_meta_table.py")
  if(EXISTS "${script}")
    set(table "${CMAKE_BINARY_DIR}/generated/typed_meta_rows.cpp")
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/generated")
    add_custom_command(OUTPUT "${table}" COMMAND "${Python_EXECUTABLE}" "${script}" "${table}" DEPENDS "${script}"
                       COMMENT "Writing the table of torch's typed shape functions" VERBATIM)
    set(${sources} ${${sources}} "${table}" PARENT_SCOPE)
  endif()
endfunction()
