# Writes OUT, a source file that knows the commit of the checkout in FOLDER ("unknown" without git, "+" with changes that are
# not committed). The file keeps its time when nothing changed, so that nothing is compiled again.
find_program(GIT git)
set(COMMIT "")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${FOLDER} describe --always --dirty=+ --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(COMMIT STREQUAL "")
  set(COMMIT unknown)
endif()
file(WRITE ${OUT}.new "#include \"app/build_description.h\"\n\nnamespace deltafin {\n\nconst char* BuildCommit() { return \"${COMMIT}\"; }\n\n}  // namespace deltafin\n")
execute_process(COMMAND ${CMAKE_COMMAND} -E copy_if_different ${OUT}.new ${OUT})
