// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import static org.junit.jupiter.api.Assertions.*;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where the native library is looked for, each in a JVM of its own. The build says where the jars are. */
class LoaderTest {
  private static final String CLASSES = System.getProperty("gradscaler.test.jar");
  private static final String NATIVES = System.getProperty("gradscaler.test.natives");
  private static final String FOLDER = System.getProperty("gradscaler.test.folder");

  private static final Path PROBE =
      Path.of(LoaderProbe.class.getProtectionDomain().getCodeSource().getLocation().getPath());

  @TempDir Path temporary;

  private String run(String classPath, String... properties) throws IOException, InterruptedException {
    final List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of(properties));
    command.add("-Djava.io.tmpdir=" + temporary);
    command.add("-cp");
    command.add(classPath + File.pathSeparator + PROBE);
    command.add(LoaderProbe.class.getName());
    return run(command);
  }

  private static String run(List<String> command) throws IOException, InterruptedException {
    final Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    final String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    process.waitFor();
    return output;
  }

  private void loads(String output) {
    assertTrue(output.startsWith("loaded "), output);
  }

  @Test
  void fromTheJarAndLeavesNothingBehind() throws Exception {
    loads(run(CLASSES + File.pathSeparator + NATIVES));
    try (var left = Files.walk(temporary)) {
      assertEquals(0, left.filter(p -> p.toString().contains("gradscaler")).count());
    }
  }

  @Test
  void fromThePropertyAsAFolder() throws Exception {
    loads(run(CLASSES, "-D" + NativeLibrary.PROPERTY + "=" + FOLDER));
  }

  @Test
  void fromThePropertyAsAFile() throws Exception {
    final String file = Path.of(FOLDER, System.mapLibraryName("gradscaler_jni")).toString();
    loads(run(CLASSES, "-D" + NativeLibrary.PROPERTY + "=" + file));
  }

  @Test
  void fromTheLibraryPath() throws Exception {
    loads(run(CLASSES, "-Djava.library.path=" + FOLDER));
  }

  @Test
  void aFailureListsEveryPlace() throws Exception {
    final String output = run(CLASSES, "-D" + NativeLibrary.PROPERTY + "=/nowhere/lib.so", "-Djava.library.path=/void");
    assertTrue(output.contains("UnsatisfiedLinkError: cannot load gradscaler's native library"), output);
    assertTrue(output.contains("system property gradscaler.library.path: /nowhere/lib.so"), output);
    assertTrue(output.contains("resource io/github/gradscaler/natives/"), output);
    assertTrue(output.contains("java.library.path: /void/"), output);
    assertTrue(output.contains("System.loadLibrary"), output);
  }

  private static String runAsModule(String modulePath) throws IOException, InterruptedException {
    return run(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-p", modulePath,
        "--patch-module", "io.github.gradscaler=" + PROBE, "-m",
        "io.github.gradscaler/" + LoaderProbe.class.getName()));
  }

  /** As in an image that jlink made without it. */
  @Test
  void aFailureNamesTheMissingModule() throws Exception {
    loads(runAsModule(CLASSES + File.pathSeparator + NATIVES));
    final String output = runAsModule(CLASSES);
    final String module = "io.github.gradscaler.natives." + Platform.current().replace('-', '.');
    assertTrue(output.contains("add " + module + " to the module path, or by jlink --add-modules"), output);
  }
}
