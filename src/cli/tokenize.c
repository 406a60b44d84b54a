/* weft tokenize: what a text encoder is told of a prompt. */
#include "base/memory.h"
#include "cli/verb.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

static weft_status run_tokenize(const weft_args *args)
{
    int count;
    const char *const *given = weft_args_positional(args, &count);
    int64_t most, cut;
    weft_tokenizer *t;
    WEFT_TRY(weft_args_i64(args, "--length", 0, 1 << 20, &most));
    WEFT_TRY(weft_tokenizer_open(given[0], &t));
    weft_status_code status = WEFT_OK;
    for (int i = 1; i < count && status == WEFT_OK; i++) {
        int32_t *id = NULL;
        int64_t tokens = 0;
        status =
            weft_tokenizer_encode(t, given[i], (int64_t)strlen(given[i]), most, &id, &tokens, &cut);
        for (int64_t k = 0; k < tokens && status == WEFT_OK; k++)
            printf("%7d  %s\n", id[k], weft_tokenizer_piece(t, id[k]));
        if (status == WEFT_OK)
            printf("%lld tokens%s", (long long)tokens, cut ? "" : "\n");
        if (status == WEFT_OK && cut)
            printf("; %lld more did not fit into %lld and were cut\n", (long long)cut,
                   (long long)most);
        weft_free(id);
    }
    weft_tokenizer_close(t);
    return status;
}

static const weft_option options[] = {
    {.name = "--length",
     .value_name = "N",
     .fallback = "0",
     .help = "tokens that the encoder takes; what is longer is cut, the end token stays. 0: any"},
};

const weft_verb weft_verb_tokenize = {
    .name = "tokenize",
    .summary = "show the pieces and ids that a text encoder is told of a text",
    .usage = "TOKENIZER \"text\" [\"text\" ...] [--length N]",
    .details =
        "TOKENIZER is a tokenizer.json, a spiece.model, a vocab.json with its merges.txt beside\n"
        "it, a vocab.txt (BERT's), or a folder with one of them (the first in this order is\n"
        "taken; in a pipeline it is the folder tokenizer). One line a token: its id and its\n"
        "piece, with what the model wants before and behind a text.\n"
        "\n"
        "Exit code 0, or 1 when the file is bad or of a kind that is not built.",
    .examples = "weft tokenize MODEL/tokenizer \"a red square\"\n",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .min_positional = 2,
    .max_positional = -1,
    .run = run_tokenize,
};
