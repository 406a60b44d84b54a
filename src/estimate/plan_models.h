/* Models for the planners, by name or by path: model -> graph -> operator list. Published models
 * whose family weft does not have come from the lists in cli/published/. */
#ifndef WEFT_CLI_PLAN_MODELS_H
#define WEFT_CLI_PLAN_MODELS_H

#include "graph/graph.h"
#include "plan/cascade/workload.h"

/* The training graph of one sample of a model's folder or config.json, or of a published Wan:
 * forward, a loss, gradients, AdamW. Frames, height and width in pixels, rounded up to whole
 * patches. The caller frees it. */
weft_status weft_plan_model_graph(const char *model, int64_t frames, int64_t height, int64_t width,
                                  weft_graph **out);

/* The output "model_loss": the mean square of the last output stands for the loss, because what the
 * real one adds is small beside the model. */
void weft_add_square_loss(weft_graph *g);

/* The operators of a model for one clip. *source: "graph" or "hand-made list". A wrong name lists
 * what there is. */
weft_status weft_plan_model_list(weft_arena *arena, const char *model, int64_t frames,
                                 int64_t height, int64_t width, const weft_device_type *device,
                                 weft_op_list *out, const char **source);

/* Everything that the cascades of these samples need of a video model. */
weft_status weft_plan_model_work(weft_arena *arena, const char *model, const weft_workload *samples,
                                 const weft_device_type *device, weft_model_work *out);

#endif
