/* train_kernels_image.S - nvcc's fat binary of train_kernels.cu as bytes; the assembler finds it by -Itrainer/device */
	.section .rodata
	.globl train_image
	.hidden train_image
	.type train_image, @object
	.balign 64
train_image:
	.incbin "train_kernels.fatbin"
	.size train_image, . - train_image
	.section .note.GNU-stack, "", %progbits
