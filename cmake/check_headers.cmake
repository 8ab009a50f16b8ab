# Target check_headers: every header of src/ compiles alone, as the first and only include of a file. Not part of `all`.
# The -inl.h files are bodies for Highway's per-target inclusion and need what stands before them.
file(GLOB_RECURSE HEADERS RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.h)
list(FILTER HEADERS EXCLUDE REGEX "-inl\\.h$")
set(CHECKED_SOURCES)
foreach(HEADER IN LISTS HEADERS)
  string(REPLACE "/" "_" NAME ${HEADER})
  set(SOURCE ${PROJECT_BINARY_DIR}/check_headers/${NAME}.cc)
  file(CONFIGURE OUTPUT ${SOURCE} CONTENT "#include \"${HEADER}\"\n")
  list(APPEND CHECKED_SOURCES ${SOURCE})
endforeach()
add_library(check_headers OBJECT EXCLUDE_FROM_ALL ${CHECKED_SOURCES})
target_link_libraries(check_headers PRIVATE deltafin_app)
