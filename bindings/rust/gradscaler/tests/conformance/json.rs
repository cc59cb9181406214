// SPDX-License-Identifier: Apache-2.0
// As much of JSON as the files of the tests are written in. What is missing or of another type is a panic that says so.
use std::iter::Peekable;
use std::str::Chars;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    pub fn parse(text: &str) -> Json {
        let mut chars = text.chars().peekable();
        let value = value(&mut chars);
        assert_eq!(next(&mut chars), None, "something follows the value");
        value
    }

    pub fn get(&self, key: &str) -> Option<&Json> {
        self.object()
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    pub fn at(&self, key: &str) -> &Json {
        self.get(key)
            .unwrap_or_else(|| panic!("no {} in {:?}", key, self))
    }

    pub fn object(&self) -> &[(String, Json)] {
        match self {
            Json::Object(members) => members,
            other => panic!("not an object: {:?}", other),
        }
    }

    pub fn array(&self) -> &[Json] {
        match self {
            Json::Array(elements) => elements,
            other => panic!("not an array: {:?}", other),
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Json::Text(text) => text,
            other => panic!("not a string: {:?}", other),
        }
    }

    pub fn bool(&self) -> bool {
        match self {
            Json::Bool(value) => *value,
            other => panic!("not a truth value: {:?}", other),
        }
    }

    /// Numbers that JSON lacks are strings.
    pub fn number(&self) -> f64 {
        match self {
            Json::Number(number) => *number,
            Json::Text(text) => match text.as_str() {
                "inf" => f64::INFINITY,
                "-inf" => f64::NEG_INFINITY,
                "nan" => f64::NAN,
                other => panic!("not a number: {}", other),
            },
            other => panic!("not a number: {:?}", other),
        }
    }

    pub fn integer(&self) -> i64 {
        let number = self.number();
        assert_eq!(number.fract(), 0.0, "not an integer");
        number as i64
    }

    /// -1 as the largest index there is.
    pub fn index(&self) -> usize {
        self.integer() as usize
    }
}

/// The next character that is no white space.
fn next(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    chars.find(|c| !c.is_whitespace())
}

fn peek(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    while chars.next_if(|c| c.is_whitespace()).is_some() {}
    chars.peek().copied()
}

fn value(chars: &mut Peekable<Chars<'_>>) -> Json {
    match peek(chars) {
        Some('{') => Json::Object(items(chars, '}', |chars| {
            let key = string(chars);
            assert_eq!(next(chars), Some(':'));
            (key, value(chars))
        })),
        Some('[') => Json::Array(items(chars, ']', value)),
        Some('"') => Json::Text(string(chars)),
        _ => {
            let mut word = String::new();
            while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || "+-.".contains(*c)) {
                word.push(c);
            }
            match word.as_str() {
                "null" => Json::Null,
                "true" => Json::Bool(true),
                "false" => Json::Bool(false),
                _ => Json::Number(
                    word.parse()
                        .unwrap_or_else(|_| panic!("not a value: {}", word)),
                ),
            }
        }
    }
}

fn items<'a, T>(
    chars: &mut Peekable<Chars<'a>>,
    close: char,
    item: impl Fn(&mut Peekable<Chars<'a>>) -> T,
) -> Vec<T> {
    let mut all = Vec::new();
    next(chars);
    if peek(chars) == Some(close) {
        next(chars);
        return all;
    }
    loop {
        all.push(item(chars));
        match next(chars) {
            Some(',') => {}
            Some(c) if c == close => return all,
            other => panic!("{:?} instead of , or {}", other, close),
        }
    }
}

fn string(chars: &mut Peekable<Chars<'_>>) -> String {
    assert_eq!(next(chars), Some('"'));
    let mut text = String::new();
    loop {
        match chars.next() {
            Some('"') => return text,
            Some('\\') => match chars.next() {
                Some(c @ ('"' | '\\' | '/')) => text.push(c),
                other => panic!("the escape {:?} is not supported", other),
            },
            Some(c) => text.push(c),
            None => panic!("a string without an end"),
        }
    }
}

#[test]
fn reads_what_it_should() {
    let value = Json::parse(r#" {"a": [1, -2.5e1, "x\"y", true, null], "b": {}, "c": "inf"} "#);
    let a = value.at("a").array();
    assert_eq!(
        (a[0].integer(), a[1].number(), a[2].text(), a[3].bool()),
        (1, -25.0, "x\"y", true)
    );
    assert_eq!(a[4], Json::Null);
    assert_eq!(value.at("b").object(), []);
    assert_eq!(value.at("c").number(), f64::INFINITY);
    assert_eq!(value.get("d"), None);
}
