//! Finds the name that a misspelt word stands for.

/// The candidate that is nearest to a misspelt word, if any is near.
pub fn near<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    // A third of the letters may be wrong. Of `c3`, none may be: it is not a misspelt `c1`.
    let letters = word.chars().count();
    let most = letters / 3;
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= most && *distance < candidate.chars().count())
        .min_by_key(|(distance, candidate)| {
            (*distance, candidate.chars().count().abs_diff(letters))
        })
        .map(|(_, candidate)| candidate)
}

/// `did you mean `x`? ` if a candidate is near; otherwise the empty string.
pub(super) fn guess<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    near(word, candidates).map_or_else(String::new, |near| format!("did you mean `{near}`? "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_words_are_found_and_others_are_not() {
        let names = ["acquire", "extend", "release"];
        assert_eq!(near("aquire", names), Some("acquire"));
        assert_eq!(near("Release", names), Some("release"));
        assert_eq!(near("nodse", ["node", "nodes"]), Some("nodes"));
        assert_eq!((near("l", ["L"]), near("c3", ["c1"])), (Some("L"), None));
        assert_eq!(near("lock", names), None);
        assert_eq!(near("", names), None);
    }
}
