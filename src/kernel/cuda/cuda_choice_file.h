/* Stored choices of implementations: a file of this GPU with one line of JSON for each choice, next
 * to the verdicts. A new choice adds a line, and a later line of a key replaces earlier ones.
 *
 *   {"key": "bf16 linear bf16[2,8] ...", "impl": "cublaslt", "variant": 0,
 *    "seconds": {"cublaslt": 1e-05, "weft": 2e-05}, "failed": ["cudnn"]}
 *
 * Functions require the lock of the files (cuda_verdict.h) and one thread at a time. */
#ifndef WEFT_KERNEL_CUDA_CUDA_CHOICE_FILE_H
#define WEFT_KERNEL_CUDA_CUDA_CHOICE_FILE_H

#include "base/json.h"

/* Sets *stored to the choice, which the file keeps; NULL: none. */
weft_status weft_cuda_choice_file_find(const char *key, const json_t **stored);
/* Adds `choice`, an object with its key. The call owns the object, also on failure. */
weft_status weft_cuda_choice_file_add(json_t *choice);
/* Sets *choices to all choices, an object by key that the file keeps. */
weft_status weft_cuda_choice_file_all(json_t **choices);
/* Forgets the lines that were read. */
void weft_cuda_choice_file_forget(void);

#endif
