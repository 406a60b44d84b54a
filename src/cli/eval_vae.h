/* `weft eval vae`. */
#ifndef WEFT_CLI_EVAL_VAE_H
#define WEFT_CLI_EVAL_VAE_H

#include "cli/options/args.h"

weft_status weft_eval_vae(const weft_args *args);

#endif
