"""What pictures show, judged by a Mermaid parser of somebody else."""
