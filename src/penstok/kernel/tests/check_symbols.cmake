# Fails if an object holds a weak symbol outside the namespace of its instruction set: the linker
# would keep one of several copies, perhaps the one this machine cannot run.
execute_process(COMMAND ${NM} --demangle ${OBJECTS} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" "," symbols "${symbols}")
string(REPLACE "\n" ";" lines "${symbols}")
foreach(line IN LISTS lines)
  if(line MATCHES "^[0-9a-f]+ [WVu] " AND NOT line MATCHES "penstok::kernel::${ISA}::")
    message(SEND_ERROR "shared weak symbol: ${line}")
  endif()
endforeach()
