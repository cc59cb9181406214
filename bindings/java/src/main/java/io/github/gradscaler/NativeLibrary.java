// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.ref.Cleaner;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;

/**
 * Finds and loads the native library, once: the path in the system property, then the copy in a jar of natives, then
 * the JVM's library path. Says every place it looked at if none has it. Calls are made elsewhere.
 */
final class NativeLibrary {
  /** A file, or a folder that holds it. */
  static final String PROPERTY = "gradscaler.library.path";

  /** Destroys objects that were not closed. */
  static final Cleaner CLEANER = Cleaner.create();

  private static final String NAME = "gradscaler_jni";
  private static final String FILE = System.mapLibraryName(NAME);

  private NativeLibrary() {}

  /** Called when the class of the native methods is initialised, which the JVM does once. */
  static void load() {
    final List<String> tried = new ArrayList<>();
    if (!loadFromProperty(tried) && !loadFromResource(tried) && !loadFromLibraryPath(tried)) {
      throw new UnsatisfiedLinkError(
          "cannot load gradscaler's native library; tried:\n  " + String.join("\n  ", tried));
    }
  }

  private static boolean loadFromProperty(List<String> tried) {
    final String value = System.getProperty(PROPERTY);
    if (value == null || value.isEmpty()) {
      tried.add("system property " + PROPERTY + ": not set");
      return false;
    }
    File file = new File(value).getAbsoluteFile();
    if (file.isDirectory()) {
      file = new File(file, FILE);
    }
    return loadFile(file.getPath(), "system property " + PROPERTY, tried);
  }

  private static boolean loadFromResource(List<String> tried) {
    final String resource = "io/github/gradscaler/natives/" + Platform.current() + "/" + FILE;
    final ClassLoader loader = NativeLibrary.class.getClassLoader();
    try (InputStream in =
        loader == null ? ClassLoader.getSystemResourceAsStream(resource) : loader.getResourceAsStream(resource)) {
      if (in == null) {
        tried.add("resource " + resource + ": not " + (NativeLibrary.class.getModule().isNamed()
            ? "in a module; add io.github.gradscaler.natives." + Platform.current().replace('-', '.')
                + " to the module path, or by jlink --add-modules"
            : "on the class path"));
        return false;
      }
      final Path folder = Files.createTempDirectory("gradscaler");
      final Path file = folder.resolve(FILE);
      try {
        Files.copy(in, file, StandardCopyOption.REPLACE_EXISTING);
        return loadFile(file.toString(), "resource " + resource, tried);
      } finally {
        remove(file);
        remove(folder);
      }
    } catch (IOException e) {
      tried.add("resource " + resource + ": cannot be unpacked: " + e);
      return false;
    }
  }

  private static boolean loadFromLibraryPath(List<String> tried) {
    try {
      System.loadLibrary(NAME);
      return true;
    } catch (IllegalCallerException e) {
      throw denied(e);
    } catch (UnsatisfiedLinkError e) {
      for (String folder : System.getProperty("java.library.path", "").split(File.pathSeparator)) {
        if (!folder.isEmpty()) {
          tried.add("java.library.path: " + new File(folder, FILE));
        }
      }
      tried.add("System.loadLibrary: " + e.getMessage());
      return false;
    }
  }

  /** Java 24 and later, run with --illegal-native-access=deny. */
  private static UnsatisfiedLinkError denied(IllegalCallerException cause) {
    final Module module = NativeLibrary.class.getModule();
    final String name = module.isNamed() ? module.getName() : "ALL-UNNAMED";
    final UnsatisfiedLinkError error = new UnsatisfiedLinkError(
        "this JVM does not allow gradscaler to load its native library; run it with --enable-native-access=" + name
        + (module.isNamed() ? "" : ", or give your application's jar the manifest attribute Enable-Native-Access: "
                + "ALL-UNNAMED"));
    error.initCause(cause);
    return error;
  }

  private static boolean loadFile(String path, String source, List<String> tried) {
    try {
      System.load(path);
      return true;
    } catch (IllegalCallerException e) {
      throw denied(e);
    } catch (UnsatisfiedLinkError e) {
      tried.add(source + ": " + path + ": " + e.getMessage());
      return false;
    }
  }

  /** Systems that keep a loaded file locked delete it when the JVM ends. */
  private static void remove(Path path) {
    try {
      Files.deleteIfExists(path);
    } catch (IOException e) {
      path.toFile().deleteOnExit();
    }
  }
}
