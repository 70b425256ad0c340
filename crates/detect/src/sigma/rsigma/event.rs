//! [`Fields`] as an event of the engine.

use std::borrow::Cow;

use rsigma_eval::{Event, EventValue};
use serde_json::{Map, Value as Json};

use crate::sigma::fields::{Fields, Value};

impl Event for Fields<'_> {
    fn get_field(&self, path: &str) -> Option<EventValue<'_>> {
        let text = |text: &'_ Cow<'_, str>| EventValue::Str(Cow::Owned(text.to_string()));
        Some(match self.get(path)? {
            Value::Text(text) => EventValue::Str(Cow::Borrowed(text)),
            Value::Texts(texts) => EventValue::Array(texts.iter().map(text).collect()),
        })
    }

    fn any_string_value(&self, pred: &dyn Fn(&str) -> bool) -> bool {
        self.own_texts().any(pred)
    }

    fn all_string_values(&self) -> Vec<Cow<'_, str>> {
        self.own_texts().map(Cow::Borrowed).collect()
    }

    fn visit_string_values(&self, visit: &mut dyn FnMut(&str)) {
        self.own_texts().for_each(visit);
    }

    fn to_json(&self) -> Json {
        let member = |(name, value): (&str, &Value<'_>)| {
            let value = match value {
                Value::Text(text) => Json::from(&**text),
                Value::Texts(texts) => texts.iter().map(|text| Json::from(&**text)).collect(),
            };
            (name.to_owned(), value)
        };
        Json::Object(self.iter().map(member).collect::<Map<_, _>>())
    }
}
