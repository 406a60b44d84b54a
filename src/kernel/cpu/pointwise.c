#include "kernel/cpu/cpu.h"
#include "kernel/cpu/table.h"
#include "kernel/pointwise_steps.h"

static weft_status_code run_step(const weft_step_kernels *self, const weft_kernel_args *step)
{
    (void)self;
    return weft_backend_cpu.kernel[step->op]->run(step);
}

static int64_t step_workspace(const weft_step_kernels *self, const weft_kernel_args *step)
{
    (void)self;
    return weft_backend_cpu.kernel[step->op]->workspace(step);
}

static const weft_step_kernels kernels = {run_step, step_workspace, NULL};

static int64_t pointwise_workspace(const weft_kernel_args *args)
{
    return weft_pointwise_workspace(&kernels, args);
}

CPU_KERNEL_WITH(pointwise, .workspace = pointwise_workspace, .narrow = CPU_ALL)
{
    return weft_pointwise_run(&kernels, args);
}
