# SPDX-License-Identifier: Apache-2.0
# Steps of run_outside.cmake: the digits example in Java on the packed jars. Arguments: JAVAC, JAVA, and STATE:
# the formats of state and masters, or nothing.
file(GLOB sources ${folder}/*.java)
file(GLOB jars ${folder}/*.jar)
list(JOIN jars ":" jars)
run(${JAVAC} --release 11 -encoding UTF-8 -Xlint:all,-try -Werror -d classes -cp ${jars} ${sources})
run(${JAVA} -cp ${folder}/classes:${jars} digits.Digits digits.csv ${STATE})
