//! Sigma rules: what is wrong with them, and which events they match.

#![forbid(unsafe_code)]

pub mod sigma;
