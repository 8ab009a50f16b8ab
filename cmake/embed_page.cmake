# cmake -DOUT=file.cc -DFOLDER=dir -P embed_page.cmake: writes the files of the page as one C++ source.
set(TEXT "// Written by the build from src/server/page/.\n#include \"server/page.h\"\n\nnamespace deltafin {\nnamespace {\n\n")
set(TABLE "")
foreach(FILE "page.html|/|text/html; charset=utf-8" "page.css|/page.css|text/css; charset=utf-8"
             "page.js|/page.js|text/javascript; charset=utf-8" "markdown.js|/markdown.js|text/javascript; charset=utf-8")
  string(REPLACE "|" ";" PARTS "${FILE}")
  # The semicolon of the type is a separator of lists too.
  list(GET PARTS 0 NAME)
  list(GET PARTS 1 PATH)
  string(REGEX REPLACE "^[^|]*\\|[^|]*\\|" "" TYPE "${FILE}")
  file(READ "${FOLDER}/${NAME}" BODY)
  string(REPLACE "." "_" VARIABLE "${NAME}")
  string(APPEND TEXT "constexpr std::string_view k_${VARIABLE} = R\"deltafin(${BODY})deltafin\";\n\n")
  string(APPEND TABLE "    {\"${PATH}\", \"${TYPE}\", k_${VARIABLE}},\n")
endforeach()
string(APPEND TEXT "constexpr PageFile kFiles[] = {\n${TABLE}};\n\n}  // namespace\n\n")
string(APPEND TEXT "std::span<const PageFile> PageFiles() { return kFiles; }\n\n}  // namespace deltafin\n")
file(WRITE "${OUT}" "${TEXT}")
