// SPDX-License-Identifier: Apache-2.0
package io.github.gradscaler;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON as maps, lists, doubles, strings and booleans: enough for the scenario files, and strict. */
final class Json {
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  static Map<String, Object> parse(String text) {
    final Json json = new Json(text);
    final Map<String, Object> result = object(json.value());
    json.skipSpace();
    if (json.at != text.length()) {
      throw json.error("more after the end");
    }
    return result;
  }

  static Map<String, Object> read(Path path) throws IOException {
    return parse(Files.readString(path));
  }

  /** One of the conformance files that every language reads. */
  static Path path(String name) {
    return Path.of(System.getProperty("gradscaler.test.conformance"), name);
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> object(Object value) {
    return (Map<String, Object>) value;
  }

  @SuppressWarnings("unchecked")
  static List<Object> list(Object value) {
    return (List<Object>) value;
  }

  /** Numbers that JSON lacks are strings. */
  static double number(Object value) {
    if (value instanceof String) {
      switch ((String) value) {
        case "inf":
          return Double.POSITIVE_INFINITY;
        case "-inf":
          return Double.NEGATIVE_INFINITY;
        case "nan":
          return Double.NaN;
        default:
          throw new IllegalArgumentException("no number: " + value);
      }
    }
    return (Double) value;
  }

  private IllegalArgumentException error(String what) {
    return new IllegalArgumentException(what + " at " + at);
  }

  private void skipSpace() {
    while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
      at++;
    }
  }

  private char peek() {
    skipSpace();
    if (at == text.length()) {
      throw error("unexpected end");
    }
    return text.charAt(at);
  }

  private void expect(char c) {
    if (peek() != c) {
      throw error("expected " + c);
    }
    at++;
  }

  private boolean accept(char c) {
    if (peek() != c) {
      return false;
    }
    at++;
    return true;
  }

  private Object value() {
    switch (peek()) {
      case '{':
        return members();
      case '[':
        return items();
      case '"':
        return string();
      default:
        return word();
    }
  }

  private Map<String, Object> members() {
    final Map<String, Object> result = new LinkedHashMap<>();
    expect('{');
    if (accept('}')) {
      return result;
    }
    do {
      peek();
      final String key = string();
      expect(':');
      result.put(key, value());
    } while (accept(','));
    expect('}');
    return result;
  }

  private List<Object> items() {
    final List<Object> result = new ArrayList<>();
    expect('[');
    if (accept(']')) {
      return result;
    }
    do {
      result.add(value());
    } while (accept(','));
    expect(']');
    return result;
  }

  private String string() {
    expect('"');
    final int end = text.indexOf('"', at);
    final String result = text.substring(at, end);
    if (result.indexOf('\\') >= 0) {
      throw error("escapes are not read");
    }
    at = end + 1;
    return result;
  }

  private Object word() {
    final int start = at;
    while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) {
      at++;
    }
    final String word = text.substring(start, at);
    if (word.equals("true") || word.equals("false")) {
      return Boolean.valueOf(word);
    }
    return Double.valueOf(word);
  }
}
