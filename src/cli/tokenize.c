/* weft tokenize: prints the input of a text encoder for a prompt. */
#include "base/memory.h"
#include "cli/options/args.h"
#include "cli/options/verb.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

static weft_status print_tokens(const weft_tokenizer *t, const char *text, int64_t most)
{
    int32_t *id = NULL;
    int64_t tokens = 0, cut;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_tokenizer_encode(t, text, (int64_t)strlen(text), most, &id, &tokens, &cut));
    for (int64_t k = 0; k < tokens; k++)
        printf("%7d  %s\n", id[k], weft_tokenizer_piece(t, id[k]));
    printf("%" PRId64 " tokens%s", tokens, cut ? "" : "\n");
    if (cut)
        printf("; %" PRId64 " more did not fit into %" PRId64 " and were cut\n", cut, most);
out:
    weft_free(id);
    return status;
}

static weft_status run_tokenize(const weft_args *args)
{
    int count;
    const char *const *positional = weft_args_positional(args, &count);
    int64_t most;
    weft_tokenizer *t;
    WEFT_TRY(weft_args_i64(args, "--max-length", 0, 1 << 20, &most));
    WEFT_TRY(weft_tokenizer_open(positional[0], &t));
    weft_status_code status = WEFT_OK;
    for (int i = 1; i < count; i++)
        WEFT_GO(print_tokens(t, positional[i], most));
out:
    weft_tokenizer_close(t);
    return status;
}

static const weft_option options[] = {
    {"--max-length", "N", "0",
     "maximum number of tokens; longer texts are truncated, and the end token is kept. 0: no limit",
     WEFT_ALSO("--length")},
};

const weft_verb weft_verb_tokenize = {
    .name = "tokenize",
    .summary = "print the tokens that a text encoder gets for a text",
    .usage = "TOKENIZER \"text\" [\"text\" ...] [--max-length N]",
    .details = "Prints one line per token with id and piece, including special tokens. TOKENIZER\n"
               "is a tokenizer.json, a spiece.model, a vocab.json with merges.txt next to it, a\n"
               "vocab.txt (BERT), or a folder with one of these, in this order of priority. Exit\n"
               "status 1: the file is damaged or of an unsupported kind.\n",
    .see = "docs/reference/verbs/tokenize.md",
    .examples = "weft tokenize MODEL/tokenizer \"a red square\"\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 2,
    .max_positional = -1,
    .copies_positional = true,
    .texts_positional = true,
    .run = run_tokenize,
};
