# SPDX-License-Identifier: Apache-2.0
# Makes the jar of natives of one platform, a separate module that the jar of classes has resolved, and puts it into
# the folder for Maven, which attaches it. Arguments: JAVAC, JAR, VERSION, SOURCES (folder), CLASSES (the jar of
# classes), PLATFORM, LIBRARY, LICENSES, WORK (folder), OUTPUT (file), PROJECT (the folder for Maven).
include(${CMAKE_CURRENT_LIST_DIR}/jar.cmake)

file(REMOVE_RECURSE ${WORK})
# x86_64 ends in a digit, which javac advises against in the name of a module.
run(${JAVAC} --release 11 --module-version ${VERSION} -Xlint:all,-module -Werror -encoding UTF-8 -p ${CLASSES} -d ${WORK}
    ${SOURCES}/module-info.java ${SOURCES}/Jar.java)
file(COPY ${LIBRARY} DESTINATION ${WORK}/io/github/gradscaler/natives/${PLATFORM})
file(COPY ${LICENSES} DESTINATION ${WORK}/META-INF)
jar(${OUTPUT} -C ${WORK} .)
file(MAKE_DIRECTORY ${PROJECT}/natives)
file(COPY_FILE ${OUTPUT} ${PROJECT}/natives/natives-${PLATFORM}.jar)
