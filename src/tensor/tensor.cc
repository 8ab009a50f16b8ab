#include "tensor/tensor.h"

#include "tensor/mxfp4.h"
