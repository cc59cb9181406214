// SPDX-License-Identifier: Apache-2.0
// JSON as dictionaries, arrays, doubles, strings and booleans: enough for the files under tests/conformance, and
// strict. Not JavaScriptSerializer: it reads some numbers as decimals, where 1e-30 is 0.
using System;
using System.Collections.Generic;
using System.Globalization;

namespace Gradscaler.Tests
{
  internal sealed class Json
  {
    private readonly string text;
    private int at;

    private Json(string text)
    {
      this.text = text;
    }

    internal static Dictionary<string, object> Parse(string text)
    {
      var json = new Json(text);
      var result = (Dictionary<string, object>)json.Value();
      json.SkipSpace();
      if (json.at != text.Length)
      {
        throw json.Error("more after the end");
      }
      return result;
    }

    private FormatException Error(string what)
    {
      return new FormatException(what + " at " + at);
    }

    private void SkipSpace()
    {
      while (at < text.Length && char.IsWhiteSpace(text[at]))
      {
        at++;
      }
    }

    private char Peek()
    {
      SkipSpace();
      if (at == text.Length)
      {
        throw Error("unexpected end");
      }
      return text[at];
    }

    private bool Accept(char c)
    {
      if (Peek() != c)
      {
        return false;
      }
      at++;
      return true;
    }

    private void Expect(char c)
    {
      if (!Accept(c))
      {
        throw Error("expected " + c);
      }
    }

    private object Value()
    {
      switch (Peek())
      {
        case '{': return Members();
        case '[': return Items();
        case '"': return String();
        default: return DeviceScalar();
      }
    }

    private Dictionary<string, object> Members()
    {
      var result = new Dictionary<string, object>();
      Expect('{');
      if (Accept('}'))
      {
        return result;
      }
      do
      {
        SkipSpace();
        string key = String();
        Expect(':');
        result.Add(key, Value());
      }
      while (Accept(','));
      Expect('}');
      return result;
    }

    private object[] Items()
    {
      var result = new List<object>();
      Expect('[');
      if (Accept(']'))
      {
        return result.ToArray();
      }
      do
      {
        result.Add(Value());
      }
      while (Accept(','));
      Expect(']');
      return result.ToArray();
    }

    private string String()
    {
      Expect('"');
      int end = text.IndexOf('"', at);
      string result = text.Substring(at, end - at);
      if (result.Contains("\\"))
      {
        throw Error("escapes are not read");
      }
      at = end + 1;
      return result;
    }

    private object DeviceScalar()
    {
      int start = at;
      while (at < text.Length && ",]} \t\r\n".IndexOf(text[at]) < 0)
      {
        at++;
      }
      string word = text.Substring(start, at - start);
      if (word == "true" || word == "false")
      {
        return word == "true";
      }
      return double.Parse(word, NumberStyles.Float, CultureInfo.InvariantCulture);
    }
  }
}
