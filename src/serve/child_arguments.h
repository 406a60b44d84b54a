/* Command lines of the server's children, from a request. */
#ifndef WEFT_SERVE_CHILD_ARGUMENTS_H
#define WEFT_SERVE_CHILD_ARGUMENTS_H

#include "serve/server_parts.h"

enum { WEFT_CHILD_ARGUMENTS = 192, WEFT_CHILD_NUMBERS = 10, WEFT_CHILD_NUMBER = 32 };

/* The prompts of a batch, in the folder of all jobs. */
#define WEFT_BATCH_LIST "batch.jsonl"

/* Zero-initialise. The texts are of the server and the request, or of this struct. */
typedef struct weft_child_arguments {
    char *at[WEFT_CHILD_ARGUMENTS]; /* NULL-terminated */
    char number[WEFT_CHILD_NUMBERS][WEFT_CHILD_NUMBER];
    char method[WEFT_METHOD_NUMBERS][32];
    int count, numbers;
    char *loras[WEFT_LORAS]; /* owned */
    int lora_count;
    char layout[WEFT_JOB_LAYOUT];
} weft_child_arguments;

/* The command line of `weft estimate` for a price. */
void weft_child_arguments_estimate(const weft_server *server, const weft_served_model *model,
                                   const json_t *request, weft_child_arguments *arguments);
/* The options of `weft generate` for a job, for the folder of the job; or for a batch of jobs that
 * are equal to the request, for the folder of all jobs. */
weft_status weft_child_arguments_generate(const weft_server *server, const weft_served_model *model,
                                          const json_t *request, int batch,
                                          weft_child_arguments *arguments);
/* Call after an error, too. */
void weft_child_arguments_free(weft_child_arguments *arguments);

#endif
