/* Tokenizers of small vocabularies in this file, with ids computed by hand. Errors of damaged files
 * have the file's name. Ids of complete vocabularies are in the golden files. */
#include "base/fs.h"
#include "base/memory.h"
#include "text/tokenizer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64];

static void set_up(void)
{
    strcpy(folder, "/tmp/weft-text-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void tear_down(void)
{
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

static const char *put(const char *name, const char *data, int64_t bytes)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(weft_file_write_atomic(path, data, bytes), WEFT_OK);
    return path;
}

static void expect(const weft_tokenizer *t, const char *text, int64_t most, const int32_t *ids,
                   int64_t want, int64_t want_cut)
{
    int32_t *id;
    int64_t count, cut;
    cr_assert_eq(weft_tokenizer_encode(t, text, (int64_t)strlen(text), most, &id, &count, &cut),
                 WEFT_OK);
    cr_assert_eq(count, want, "\"%s\": %" PRId64 " tokens", text, count);
    for (int64_t i = 0; i < want; i++)
        cr_expect_eq(id[i], ids[i], "\"%s\": token %" PRId64 " is %d", text, i, id[i]);
    cr_expect_eq(cut, want_cut);
    weft_free(id);
}
#define IDS(...)                                                                                   \
    (const int32_t[]){__VA_ARGS__}, (int64_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void refused(const char *path, const char *key)
{
    weft_tokenizer *t;
    cr_assert_neq(weft_tokenizer_open(path, &t), WEFT_OK);
    const weft_message_fields *at = weft_error_fields();
    cr_expect_eq(weft_error_class(), WEFT_MSG_TOKENIZER_INVALID, "%s", weft_error_message());
    cr_expect_str_eq(at->file, path);
    cr_expect(key ? at->key && !strcmp(at->key, key) : !at->key, "%s", weft_error_message());
}

#define UNIGRAM_OF(normalizer, splits)                                                             \
    "{\"added_tokens\": [{\"id\": 1, \"content\": \"</s>\"}],"                                     \
    " \"normalizer\": " normalizer ", \"pre_tokenizer\": " splits ","                              \
    " \"post_processor\": {\"type\": \"TemplateProcessing\","                                      \
    "  \"single\": [{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"</s>\"}}],"     \
    "  \"special_tokens\": {\"</s>\": {\"ids\": [1]}}},"                                           \
    " \"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], [\"</s>\", "   \
    "0],"                                                                                          \
    "  [\"\\u2581\", -2], [\"a\", -3], [\"b\", -3], [\"ab\", -4], [\"\\u2581ab\", -5]]}}"
#define UNIGRAM(map) UNIGRAM_OF("{\"type\": \"Precompiled\"" map "}", "{\"type\": \"Metaspace\"}")
#define STEPS(list, first, then)                                                                   \
    "{\"type\": \"Sequence\", \"" list "\": [{\"type\": \"" first "}, {\"type\": \"" then "\"}]}"

TestSuite(tokenizer, .init = set_up, .fini = tear_down);

/* A file of Gemma's form with the tokens of `bytes` bytes from id 4 on, then letters. */
static const char *put_gemma(int bytes)
{
    weft_buf json = {0};
    weft_buf_printf(&json, "{\"added_tokens\": [{\"id\": 1, \"content\": \"<e>\"}],"
                           " \"normalizer\": {\"type\": \"Replace\", \"content\": \"\\u2581\","
                           "  \"pattern\": {\"String\": \" \"}},"
                           " \"model\": {\"type\": \"BPE\", \"byte_fallback\": true,"
                           "  \"vocab\": {\"<p>\": 0, \"<e>\": 1, \"\\u2581\": 2, \"\\u2581a\": 3");
    for (int i = 0; i < bytes; i++)
        weft_buf_printf(&json, ", \"<0x%02X>\": %d", i, 4 + i);
    weft_buf_printf(&json,
                    ", \"a\": 300, \"b\": 301, \"ab\": 302, \"aba\": 303},"
                    " \"merges\": [[\"\\u2581\", \"a\"], [\"a\", \"b\"], [\"ab\", \"a\"]]}}");
    cr_assert(!json.failed);
    const char *path = put("tokenizer.json", json.data, json.len);
    weft_buf_free(&json);
    return path;
}

Test(tokenizer, gemma)
{
    weft_tokenizer *t;
    cr_assert_eq(weft_tokenizer_open(put_gemma(256), &t), WEFT_OK, "%s", weft_error_message());
    expect(t, "", 0, IDS(), 0);
    expect(t, "ab ab", 0, IDS(302, 3, 301), 0); /* the merge of the bar has the lower rank */
    expect(t, "ababa", 0, IDS(302, 303), 0);
    expect(t, "  a", 0, IDS(2, 3), 0);
    expect(t, "\xc3\xa9<e>a", 0, IDS(4 + 0xc3, 4 + 0xa9, 1, 300), 0);
    weft_buf text = {0};
    weft_tokenizer_text(t, IDS(3, 4 + 0xc3, 4 + 0xa9, 2, 302), &text);
    cr_expect_str_eq(text.data, " a\xc3\xa9 ab");
    weft_buf_free(&text);
    cr_expect_str_eq(weft_tokenizer_class(t), "GemmaTokenizerFast");
    weft_tokenizer_close(t);
    refused(put_gemma(255), "vocab");
}

Test(tokenizer, unigram)
{
    weft_tokenizer *t;
    const char good[] = UNIGRAM(", \"precompiled_charsmap\": \"BAAAAAAAAAAA\"");
    cr_assert_eq(weft_tokenizer_open(put("tokenizer.json", good, sizeof good - 1), &t), WEFT_OK,
                 "%s", weft_error_message());
    expect(t, "", 0, IDS(1), 0);
    expect(t, "ab ab", 0, IDS(6, 6, 1), 0);    /* -5 is more than -2 - 4 */
    expect(t, "a", 0, IDS(2, 3, 1), 0);        /* the bar and a letter */
    expect(t, "abxyb", 0, IDS(6, 0, 4, 1), 0); /* unknown letters are one */
    expect(t, "</s>b", 0, IDS(1, 2, 4, 1), 0); /* an added token */
    expect(t, "ab ab ab", 2, IDS(6, 1), 2);    /* cut, the end stays */
    weft_tokenizer_close(t);
}

Test(tokenizer, bad_unigram)
{
    const char none[] = UNIGRAM(""), cut[] = UNIGRAM(", \"precompiled_charsmap\": \"BAAAAA\"");
    refused(put("tokenizer.json", none, sizeof none - 1), "precompiled_charsmap");
    refused(put("tokenizer.json", cut, sizeof cut - 1), "precompiled_charsmap");
    refused(put("tokenizer.json", "{}", 2), "model");
}

static void unsupported(const char *json, const char *key, const char *value)
{
    weft_tokenizer *t;
    cr_assert_neq(weft_tokenizer_open(put("tokenizer.json", json, (int64_t)strlen(json)), &t),
                  WEFT_OK, "%s of %s is accepted", value, key);
    const weft_message_fields *at = weft_error_fields();
    cr_expect_eq(weft_error_class(), WEFT_MSG_TEXT_ENCODER_UNSUPPORTED, "%s", weft_error_message());
    cr_expect_str_eq(at->key, key);
    cr_expect_str_eq(at->value, value);
}

/* A step that weft does not implement is named, also in a list with known steps. */
Test(tokenizer, unknown_steps_of_a_list)
{
#define MAP "Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAAAA\""
    weft_tokenizer *t;
    const char good[] = UNIGRAM_OF(STEPS("normalizers", MAP, "Strip"),
                                   STEPS("pretokenizers", "WhitespaceSplit\"", "Metaspace"));
    cr_assert_eq(weft_tokenizer_open(put("tokenizer.json", good, sizeof good - 1), &t), WEFT_OK,
                 "%s", weft_error_message());
    weft_tokenizer_close(t);
    unsupported(UNIGRAM_OF(STEPS("normalizers", MAP, "Lowercase"), "{\"type\": \"Metaspace\"}"),
                "normalizer", "Lowercase");
    unsupported(
        UNIGRAM_OF("{\"type\": \"" MAP "}", STEPS("pretokenizers", "Metaspace\"", "Digits")),
        "pre_tokenizer", "Digits");
#undef MAP
}

Test(tokenizer, bytes_in_groups_of_three_digits)
{
    weft_tokenizer *t;
    const char json[] =
        "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": "
        "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}"
        "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}},"
        "\"model\": {\"type\": \"BPE\", \"merges\": [[\"1\", \"2\"], \"12 3\", [\"\\u0120\", "
        "\"a\"]],"
        " \"vocab\": {\"\\u0120\": 0, \"a\": 1, \"1\": 2, \"2\": 3, \"3\": 4, \"12\": 5,"
        " \"123\": 6, \"\\u0120a\": 7}}}";
    cr_assert_eq(weft_tokenizer_open(put("tokenizer.json", json, sizeof json - 1), &t), WEFT_OK,
                 "%s", weft_error_message());
    expect(t, "1231 a", 0, IDS(6, 2, 7), 0);
    expect(t, "12312", 0, IDS(6, 5), 0);
    expect(t, "  a", 0, IDS(0, 7), 0); /* one blank is part of the token of the word */
    weft_tokenizer_close(t);
}

Test(tokenizer, clip)
{
    weft_tokenizer *t;
    static const char vocabulary[] =
        "{\"a\": 0, \"b\": 1, \"a</w>\": 2, \"b</w>\": 3, \"ab</w>\": 4,"
        " \"<|startoftext|>\": 5, \"<|endoftext|>\": 6}",
                      merges[] = "#version: 0.2\na b</w>\n", wrong[] = "a q\n";
    put("vocab.json", vocabulary, sizeof vocabulary - 1);
    put("merges.txt", merges, sizeof merges - 1);
    cr_assert_eq(weft_tokenizer_open(folder, &t), WEFT_OK, "%s", weft_error_message());
    expect(t, "AB \n a", 0, IDS(5, 4, 2, 6), 0);
    expect(t, "ab ab ab", 3, IDS(5, 4, 6), 2);
    weft_tokenizer_close(t);
    put("merges.txt", wrong, sizeof wrong - 1);
    refused(put("vocab.json", vocabulary, sizeof vocabulary - 1), "merges");
}

/* Qwen 2's files: one digit per piece, composed letters, special tokens from the config. */
Test(tokenizer, qwen_in_two_files)
{
    weft_tokenizer *t;
    static const char vocabulary[] = "{\"1\": 0, \"2\": 1, \"\u00c3\": 2, \"\u00a9\": 3,"
                                     " \"12\": 4, \"\u00c3\u00a9\": 5}",
                      merges[] = "#version: 0.2\n1 2\n\xc3\x83 \xc2\xa9\n",
                      config[] = "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"pad_token\":"
                                 " \"<|end|>\", \"added_tokens_decoder\": {\"6\":"
                                 " {\"content\": \"<|end|>\", \"lstrip\": false}}}",
                      without[] = "{\"tokenizer_class\": \"Qwen2Tokenizer\"}";
    put("merges.txt", merges, sizeof merges - 1);
    put("vocab.json", vocabulary, sizeof vocabulary - 1);
    put("tokenizer_config.json", config, sizeof config - 1);
    cr_assert_eq(weft_tokenizer_open(folder, &t), WEFT_OK, "%s", weft_error_message());
    expect(t, "12<|end|>e\xcc\x81", 0, IDS(0, 1, 6, 5), 0);
    cr_assert_eq(weft_tokenizer_padding(t), 6);
    weft_tokenizer_close(t);
    put("tokenizer_config.json", without, sizeof without - 1);
    refused(put("vocab.json", vocabulary, sizeof vocabulary - 1), "added_tokens_decoder");
}

/* A piece of a SentencePiece model: text, score, type. */
static void piece(weft_buf *out, const char *text, float score, int type)
{
    const int64_t length = (int64_t)strlen(text);
    const char head[] = {0x0a, (char)(2 + length + 5 + 2), 0x0a, (char)length}, tail[] = {0x15};
    weft_buf_append(out, head, 4);
    weft_buf_append(out, text, length);
    weft_buf_append(out, tail, 1);
    weft_buf_append(out, &score, 4);
    weft_buf_append(out, (const char[]){0x18, (char)type}, 2);
}

Test(tokenizer, spiece)
{
    weft_tokenizer *t;
    weft_buf model = {0};
    piece(&model, "<unk>", 0, 2);
    piece(&model, "</s>", 0, 3);
    piece(&model, "\xe2\x96\x81", -2, 1);
    piece(&model, "a", -3, 1);
    piece(&model,
          "\xe2\x96\x81"
          "ab",
          -5, 1);
    piece(&model, "cam", 0, 4);
    cr_assert_eq(weft_tokenizer_open(put("spiece.model", model.data, model.len), &t), WEFT_OK, "%s",
                 weft_error_message());
    expect(t, "  ab   a ", 0, IDS(4, 2, 3, 1), 0);
    expect(t, "camxy", 0, IDS(2, 5, 0, 1), 0); /* always whole; unknown letters are one */
    weft_tokenizer_close(t);
    refused(put("spiece.model", model.data, model.len - 3), NULL);
    refused(put("spiece.model", "", 0), NULL);
    weft_buf_free(&model);
}
