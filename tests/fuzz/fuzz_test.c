/* Every fuzz target runs its corpus and fixed mutations of the corpus. */
#include "fuzz.h"
#include "fuzz_corpus.h"

#include "base/fs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

/* Readers of foreign models accept each of their seeds, so that mutations get past the first
 * checks. */
static void takes(const char *name, int (*target)(const uint8_t *, size_t))
{
    char folder[512];
    const char *source = getenv("SRC");
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", source ? source : ".", name);
    weft_names names = {0};
    cr_assert_eq(weft_list_dir(folder, false, &names), WEFT_OK, "%s", weft_error_message());
    for (int64_t i = 0; i < names.count; i++) {
        char *path = weft_path_join(folder, names.name[i]), *data;
        int64_t bytes;
        cr_assert_eq(weft_file_read(path, 1 << 20, &data, &bytes), WEFT_OK);
        fuzz_taken = 0;
        target((const uint8_t *)data, (size_t)bytes);
        cr_expect_eq(fuzz_taken, 1, "%s: %s", path, weft_error_message());
        weft_free(data);
        weft_free(path);
    }
    weft_names_free(&names);
}

Test(fuzz, seeds_are_taken)
{
    takes("gguf", fuzz_gguf);
    takes("torch", fuzz_torch);
    takes("tokenizer", fuzz_tokenizer);
    takes("spiece", fuzz_spiece);
}

Test(fuzz, safetensors)
{
    fuzz_corpus_run("safetensors", fuzz_safetensors);
}

Test(fuzz, gguf)
{
    fuzz_corpus_run("gguf", fuzz_gguf);
}

Test(fuzz, torch)
{
    fuzz_corpus_run("torch", fuzz_torch);
}
Test(fuzz, tar)
{
    fuzz_corpus_run("tar", fuzz_tar);
}
Test(fuzz, index)
{
    fuzz_corpus_run("index", fuzz_index);
}
Test(fuzz, npy)
{
    fuzz_corpus_run("npy", fuzz_npy);
}
Test(fuzz, config)
{
    fuzz_corpus_run("config", fuzz_config);
}
Test(fuzz, json)
{
    fuzz_corpus_run("json", fuzz_json);
}
Test(fuzz, metrics)
{
    fuzz_corpus_run("metrics", fuzz_metrics);
}
Test(fuzz, tokenizer)
{
    fuzz_corpus_run("tokenizer", fuzz_tokenizer);
}
Test(fuzz, spiece)
{
    fuzz_corpus_run("spiece", fuzz_spiece);
}
