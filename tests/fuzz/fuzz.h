/* Fuzz targets: each reads bytes as one of weft's input formats and must neither crash nor hang on
 * any input. tests/fuzz/corpus/<name>/ has the initial inputs.
 *
 * fuzz_test.c runs the corpus and fixed mutations of it as part of the tests; `make fuzz` runs
 * libFuzzer. */
#ifndef WEFT_TESTS_FUZZ_H
#define WEFT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int fuzz_safetensors(const uint8_t *data, size_t size);
int fuzz_gguf(const uint8_t *data, size_t size);
int fuzz_torch(const uint8_t *data, size_t size);
int fuzz_tar(const uint8_t *data, size_t size);
int fuzz_index(const uint8_t *data, size_t size);
int fuzz_npy(const uint8_t *data, size_t size);
int fuzz_config(const uint8_t *data, size_t size);
int fuzz_json(const uint8_t *data, size_t size);
int fuzz_metrics(const uint8_t *data, size_t size);
int fuzz_tokenizer(const uint8_t *data, size_t size);
int fuzz_spiece(const uint8_t *data, size_t size);

/* Inputs that a reader of foreign models has taken so far. */
extern int64_t fuzz_taken;

#endif
