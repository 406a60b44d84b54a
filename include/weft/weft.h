/* weft as a library.
 *
 *   cc program.c $(pkg-config --cflags --libs weft)
 *
 * One header for what an embedding program needs: models as graphs, programs that run them,
 * weights, footage and training batches. Every function that can fail returns weft_status and
 * leaves a message for weft_error_message(). Nothing prints but weft_log and weft_progress. */
#ifndef WEFT_H
#define WEFT_H

#ifdef __cplusplus
#error "weft's headers are C17: include them from a C file"
#endif

/* the base: status, memory, files, configs, random numbers, messages */
#include "base/config.h"
#include "base/dtype.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

/* footage and files */
#include "format/npy.h"
#include "format/safetensors.h"
#include "format/tar.h"
#include "format/tfevents.h"
#include "video/clip.h"
#include "video/image.h"
#include "video/reader.h"
#include "video/writer.h"

/* models, graphs, passes, and programs that run them */
#include "graph/graph.h"
#include "graph/mesh.h"
#include "kernel/kernel.h"
#include "model/model.h"
#include "nn/nn.h"
#include "pass/pass.h"
#include "runtime/runtime.h"

/* diffusion and data */
#include "data/loader.h"
#include "diffusion/flow.h"
#include "diffusion/sampler.h"

#endif
