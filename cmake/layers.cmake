# Which folder under src/ may include which. tools/check_layers.py reads the same table and greps the includes.
# A folder may always include itself; an arrow that is not listed is a build error.
set(DELTAFIN_LAYERS
  "base:"
  "tensor: base"
  "spec: tensor base"
  "io: base"
  "text: base"
  "backend: tensor base"
  "backend/reference: backend tensor base"
  "backend/cpu: backend tensor base"
  "checkpoint: backend spec tensor io base"
  "pack: checkpoint spec tensor io base"
  "setup: pack checkpoint spec tensor io base"
  "cache: checkpoint backend spec tensor io base"
  "model: cache checkpoint backend spec tensor base"
  "draft: text checkpoint backend spec tensor io base"
  "engine: draft model cache checkpoint backend spec tensor io base"
  "synth: checkpoint spec tensor base"
  "bench: engine draft backend/cpu backend spec tensor io base"
  "server: engine text base"
  "doctor: engine setup pack backend/cpu backend checkpoint text spec tensor io base"
  "simulate: synth cache checkpoint spec tensor base"
  "app: server draft bench synth pack engine model cache checkpoint backend/cpu backend/reference backend spec tensor io text base doctor setup simulate"
)

# deltafin_library(folder SOURCES a.cc b.cc [LINK lib...]): the library deltafin_<folder>, linked with the folders that the
# table allows. LINK names third-party targets.
function(deltafin_library FOLDER)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  string(REPLACE "/" "_" NAME ${FOLDER})
  add_library(deltafin_${NAME} STATIC ${ARG_SOURCES})
  foreach(ROW IN LISTS DELTAFIN_LAYERS)
    string(REGEX MATCH "^([^:]*):(.*)$" _ "${ROW}")
    if(CMAKE_MATCH_1 STREQUAL FOLDER)
      separate_arguments(DEPS UNIX_COMMAND "${CMAKE_MATCH_2}")
    endif()
  endforeach()
  if(NOT DEFINED DEPS)
    message(FATAL_ERROR "src/${FOLDER} is not in the layer table (cmake/layers.cmake)")
  endif()
  foreach(DEP IN LISTS DEPS)
    string(REPLACE "/" "_" DEP ${DEP})
    target_link_libraries(deltafin_${NAME} PUBLIC deltafin_${DEP})
  endforeach()
  target_link_libraries(deltafin_${NAME} PUBLIC deltafin_flags ${ARG_LINK})
endfunction()

# deltafin_test(folder SOURCES a_test.cc ... [LINK lib...] [LABELS l...] [TIMEOUT s]): one test program for tests/<folder>.
function(deltafin_test NAME)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${NAME}_tests ${ARG_SOURCES})
  target_link_libraries(${NAME}_tests PRIVATE ${ARG_LINK} deltafin_test_support GTest::gmock GTest::gtest_main)
  add_test(NAME ${NAME} COMMAND ${NAME}_tests --gtest_brief=1)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
