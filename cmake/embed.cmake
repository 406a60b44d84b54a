# Writes a file as a C array of its bytes and a zero byte, and their number if COUNT is set.
# cmake -DFROM=page.html -DTO=page.c -DNAME=weft_page [-DCOUNT=weft_bytes] -P cmake/embed.cmake
file(READ ${FROM} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")
string(REGEX REPLACE "(....................................................................................................)" "\\1\n" hex "${hex}")
file(WRITE ${TO} "const unsigned char ${NAME}[] = {\n${hex}0x00};\n")
if(COUNT)
    file(APPEND ${TO} "const unsigned int ${COUNT} = ${bytes};\n")
endif()
