// What distinguishes the relatives of cl100k: a pattern is a row here and in bpe/variant.cpp.
#pragma once

namespace penstok::kernel {

// What a word consists of.
enum class Words {
  letters,            // \p{L}+
  letters_and_marks,  // [\p{L}\p{M}]+, and others do not include marks
  by_case,            // capitals, then small letters; marks are in both, and in others
};

// 's 't 're 've 'm 'll 'd, in any case.
enum class Contractions {
  none,
  apart,      // an alternative of their own, before words
  end_words,  // optional at the end of a word
};

// cl100k_base, Llama 3.
struct Cl100kRules {
  static constexpr Words kWords = Words::letters;
  static constexpr Contractions kContractions = Contractions::apart;
  static constexpr unsigned kMostDigits = 3;
  static constexpr bool kHanApart = false;
};

// nanochat.
struct NanochatRules : Cl100kRules {
  static constexpr unsigned kMostDigits = 2;
};

// Qwen 2 to 3.
struct Qwen2Rules : Cl100kRules {
  static constexpr unsigned kMostDigits = 1;
};

// Qwen 3.5.
struct Qwen35Rules : Qwen2Rules {
  static constexpr Words kWords = Words::letters_and_marks;
};

// o200k_base, GPT-4o, gpt-oss, Llama 4.
struct O200kRules {
  static constexpr Words kWords = Words::by_case;
  static constexpr Contractions kContractions = Contractions::end_words;
  static constexpr unsigned kMostDigits = 3;
  static constexpr bool kHanApart = false;    // \p{Han}+ is the first alternative, and not in words
  static constexpr bool kTakesSlashes = true;  // can slashes follow the newlines after others?
};

// Mistral's tekken.
struct TekkenRules : O200kRules {
  static constexpr Contractions kContractions = Contractions::none;
  static constexpr unsigned kMostDigits = 1;
};

// Moonshot's Kimi.
struct KimiRules : O200kRules {
  static constexpr bool kHanApart = true;
  static constexpr bool kTakesSlashes = false;
};

}  // namespace penstok::kernel
