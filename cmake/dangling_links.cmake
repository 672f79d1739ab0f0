# remove_dangling_links(FOLDER): removes the links in the folder whose target does not exist, those of files that have
# left the source tree.
function(remove_dangling_links folder)
  file(GLOB entries LIST_DIRECTORIES false "${folder}/*")
  foreach(entry IN LISTS entries)
    if(IS_SYMLINK "${entry}" AND NOT EXISTS "${entry}")
      file(REMOVE "${entry}")
    endif()
  endforeach()
endfunction()
