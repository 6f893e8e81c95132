# Fails if the library has static objects with destructors: other static objects may call it after those have run.
#
#   cmake -DNM=nm -DLIBRARY=libraggrad.a -P static_destructors_test.cmake
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${NM} --undefined-only --print-file-name ${LIBRARY} OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT symbols MATCHES " U pthread_create")
  message(FATAL_ERROR "${LIBRARY}: ${NM} does not show pthread_create, which the thread pool needs")
endif()
string(REGEX MATCHALL "[^\n]* U (__cxa_atexit|atexit)[^\n]*" destructors "${symbols}")
if(destructors)
  list(JOIN destructors "\n  " destructors)
  message(FATAL_ERROR "static objects with destructors (use core/first_use.h instead):\n  ${destructors}")
endif()
