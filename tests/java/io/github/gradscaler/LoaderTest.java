// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.io.File;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where the native library is looked for, each in a JVM of its own. The build says where the jars are. */
class LoaderTest {
  private static final String CLASSES = System.getProperty("gradscaler.test.jar");
  private static final String NATIVES = System.getProperty("gradscaler.test.natives");
  private static final String FOLDER = System.getProperty("gradscaler.test.folder");

  private static final Path PROBE =
      Path.of(URI.create(LoaderProbe.class.getProtectionDomain().getCodeSource().getLocation().toString()));

  @TempDir Path temporary;

  private String run(int exitStatus, String classPath, String... properties) throws Exception {
    return World.java(exitStatus, Stream.concat(Stream.of(properties), Stream.of("-Djava.io.tmpdir=" + temporary, "-cp",
        classPath + File.pathSeparator + PROBE, LoaderProbe.class.getName())).toArray(String[]::new));
  }

  private static void loads(String output) {
    assertTrue(output.startsWith("loaded "), output);
  }

  @Test
  void fromTheJarAndLeavesNothingBehind() throws Exception {
    loads(run(0, CLASSES + File.pathSeparator + NATIVES));
    try (var left = Files.walk(temporary)) {
      assertEquals(0, left.filter(p -> p.toString().contains("gradscaler")).count());
    }
  }

  @Test
  void fromThePropertyAsAFolder() throws Exception {
    loads(run(0, CLASSES, "-D" + NativeLibrary.PROPERTY + "=" + FOLDER));
  }

  @Test
  void fromThePropertyAsAFile() throws Exception {
    final String file = Path.of(FOLDER, System.mapLibraryName("gradscaler_jni")).toString();
    loads(run(0, CLASSES, "-D" + NativeLibrary.PROPERTY + "=" + file));
  }

  @Test
  void fromTheLibraryPath() throws Exception {
    loads(run(0, CLASSES, "-Djava.library.path=" + FOLDER));
  }

  @Test
  void aFailureListsEveryPlace() throws Exception {
    final String output =
        run(1, CLASSES, "-D" + NativeLibrary.PROPERTY + "=/nowhere/lib.so", "-Djava.library.path=/void");
    for (String part : new String[] {"UnsatisfiedLinkError: cannot load gradscaler's native library",
        "system property gradscaler.library.path: /nowhere/lib.so", "resource io/github/gradscaler/natives/",
        "java.library.path: /void/", "System.loadLibrary"}) {
      assertTrue(output.contains(part), () -> part + " is not in " + output);
    }
  }

  private static String runAsModule(int exitStatus, String modulePath) throws Exception {
    return World.java(exitStatus, "-p", modulePath, "--patch-module", "io.github.gradscaler=" + PROBE, "-m",
        "io.github.gradscaler/" + LoaderProbe.class.getName());
  }

  /** As in an image that jlink made without it. */
  @Test
  void aFailureNamesTheMissingModule() throws Exception {
    loads(runAsModule(0, CLASSES + File.pathSeparator + NATIVES));
    final String output = runAsModule(1, CLASSES);
    final String module = "io.github.gradscaler.natives." + Platform.current().replace('-', '.');
    assertTrue(output.contains("add " + module + " to the module path, or by jlink --add-modules"), output);
  }
}
