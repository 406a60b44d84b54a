/* weft as a library.
 *
 *   cc program.c $(pkg-config --cflags --libs weft)
 *
 * One header for what an embedding program needs: models as graphs, programs that run them,
 * weights, footage, training batches, generation. Every function that can fail returns weft_status
 * and leaves a message for weft_error_message(). Nothing prints but weft_log and weft_progress.
 * Block signals that have a handler of yours in threads that run programs (src/base/interrupt.c
 * says why), or give the handlers a stack of their own (sigaltstack, SA_ONSTACK).
 * examples/embed/embed.c reads shards, trains and generates with it. */
#ifndef WEFT_H
#define WEFT_H

#ifdef __cplusplus
#error "weft's headers are C17: include them from a C file"
#endif

/* status, memory, messages */
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

/* footage, shards, weights */
#include "data/loader.h"
#include "format/npy.h"
#include "format/safetensors.h"
#include "video/clip.h"
#include "video/image.h"
#include "video/reader.h"
#include "video/writer.h"

/* graphs and models; passes over them; programs that run them */
#include "model/model.h"
#include "nn/nn.h"
#include "pass/passes.h"
#include "runtime/runtime.h"
#include "train/optimizer.h"

/* from a prompt to a video */
#include "generate/generator.h"

#endif
