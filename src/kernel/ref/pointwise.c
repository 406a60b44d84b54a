#include "kernel/pointwise_steps.h"
#include "kernel/ref/ref.h"
#include "kernel/ref/table.h"

static weft_status_code run_step(const weft_step_kernels *self, const weft_kernel_args *step)
{
    (void)self;
    return weft_backend_ref.kernel[step->op]->run(step);
}

/* No kernel of an elementwise op has a workspace. */
static int64_t step_workspace(const weft_step_kernels *self, const weft_kernel_args *step)
{
    (void)self, (void)step;
    return 0;
}

static const weft_step_kernels kernels = {run_step, step_workspace, NULL};

static int64_t pointwise_workspace(const weft_kernel_args *args)
{
    return weft_pointwise_workspace(&kernels, args);
}

REF_KERNEL_WITH(pointwise, .workspace = pointwise_workspace)
{
    return weft_pointwise_run(&kernels, args);
}
